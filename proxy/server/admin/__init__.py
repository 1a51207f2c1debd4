"""The operator's port: probes, metrics, pages as JSON below `/-/`, and the console in a browser."""
