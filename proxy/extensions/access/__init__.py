"""Who may call what: bearer tokens that issuers have signed, rules per caller, and a line per decision."""
