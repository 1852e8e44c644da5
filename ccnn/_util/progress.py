"""The progress of long work: a bar on a terminal, elsewhere one line of the log per minute.

    for image in Progress(images, desc="scoring", unit="image"):
        ...
"""
import logging
import sys

from tqdm import tqdm

INTERVAL = 60       # seconds between two lines

FORMAT = "{n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left{postfix}"

log = logging.getLogger(__name__)


class Progress(tqdm):
    """tqdm with the arguments of tqdm. Without a terminal, work that is shorter than a minute says nothing."""

    def __init__(self, *arguments, **options):
        if not sys.stderr.isatty():
            options.update(file=Log(), mininterval=INTERVAL, miniters=0, delay=INTERVAL, leave=False,
                           bar_format=f"{options['desc']}: {FORMAT}" if options.get("desc") else FORMAT)
        super().__init__(*arguments, **options)


class Log:
    """What tqdm needs of a file; whatever it writes becomes a line of the log."""

    def write(self, text):
        if text.strip():
            log.info("%s", text.strip())

    def flush(self):
        pass
