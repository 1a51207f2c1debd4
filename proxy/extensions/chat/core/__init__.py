"""Where tools stand in requests and calls in answers, by API, and what is made of a call. Pure."""
