"""What this project found out: each study's script and functions, with the small tables of its runs."""
