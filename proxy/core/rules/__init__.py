"""The table of repair rules, and the proposals of each."""
