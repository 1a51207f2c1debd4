"""JSON text: strict in, exact out, pointers, repair of damaged text."""
