"""What routes take and give, one file per noun as the routes have. Money goes out as decimal strings, times as UTC."""
