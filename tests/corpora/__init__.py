"""Big runs over collected data, behind `make corpora`; the suite itself runs on the samples in tests/data."""
