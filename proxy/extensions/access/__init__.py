"""Who may call what and how often: bearer tokens that issuers have signed, rules and rates, and a line per decision."""
