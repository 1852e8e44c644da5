"""What every room may need and users never see.

One-line errors; atomic files and locks, and the one rule about what may be written and deleted in a working folder
(`work_folder`); files of unknown origin, read within limits; text and progress; worker processes and clusters;
downloads; the places of our own files; settings that a table describes.
"""
