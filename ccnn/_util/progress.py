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
    """tqdm with the arguments of tqdm. Without a terminal, work shorter than a minute writes nothing."""

    def __init__(self, *arguments, **options):
        if not sys.stderr.isatty():
            options.update(file=Log(), mininterval=INTERVAL, miniters=0, delay=INTERVAL, leave=False,
                           bar_format=f"{options['desc']}: {FORMAT}" if options.get("desc") else FORMAT)
        super().__init__(*arguments, **options)


class Log:
    """What tqdm needs of a file; whatever it writes becomes a line of the log."""

    def write(self, text):
        text = text.replace("\x1b[A", "").strip()       # a bar inside another moves the cursor up
        if text:
            log.info("%s", text)

    def flush(self):
        pass
