"""Operations of HTTP APIs: their parameters, their bodies, and how arguments are written as text. Pure."""
