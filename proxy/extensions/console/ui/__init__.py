"""The files for the browser, and the function that serves them."""
