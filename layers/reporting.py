"""Errors of layers that show under `caffe train`."""
import functools
import os
import sys
import traceback

from ccnn._util.errors import UserError


class Reporting:
    """Base, before caffe.Layer, of a layer whose errors show under `caffe train`; a UserError as its one line.

    Debian's `caffe` lets a Python exception through to std::terminate: it aborts with a page of C++ addresses and
    without a word of the exception. Under it the outermost Python frame has no caller. That frame therefore
    prints the error and ends the process: with status 2 after a UserError, with 1 after anything else. Where Python
    called Caffe, exceptions pass as usual.
    """

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        for name in {"setup", "reshape", "forward", "backward"}.intersection(vars(cls)):
            setattr(cls, name, _reporting(vars(cls)[name]))


def _reporting(method):
    @functools.wraps(method)
    def report(*arguments):
        try:
            return method(*arguments)
        except BaseException as error:
            if sys._getframe().f_back is not None:
                raise
            if isinstance(error, UserError):
                print(error, file=sys.stderr, flush=True)
                os._exit(2)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return report
