"""Operations: their parameters as text, and arguments that no request can hold."""
