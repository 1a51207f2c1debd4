"""The repair engine, and what it uses of a call as a whole: wrappers and spellings."""
