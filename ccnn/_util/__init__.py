"""What every room may need and users never see.

Errors of one line; files that are whole or not there, locks, and the one rule about what may be written and deleted in
a working folder (`work_folder`); files of strangers, read within limits; text and progress; worker processes and
clusters; downloads; the places of our own files; settings that a table describes.
"""
