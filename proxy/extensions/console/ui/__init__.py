"""The files for the browser, and what serves them."""
