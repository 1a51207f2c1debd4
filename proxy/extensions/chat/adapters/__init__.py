"""The proxy's failures in the error formats of model servers."""
