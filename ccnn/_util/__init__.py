"""What every room may need and users never see: errors, files, text, progress, worker processes, downloads."""
