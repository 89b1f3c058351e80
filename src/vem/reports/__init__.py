"""The report: run directories in, one self-contained HTML page and its figures out."""
