"""Self-contained HTML pages, made from tables and files."""
