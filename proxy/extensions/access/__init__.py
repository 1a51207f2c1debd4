"""Access to tools: bearer tokens that issuers have signed, rules and rates of calls, and a line per decision."""
