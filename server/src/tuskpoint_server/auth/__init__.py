"""Who may call, and how much: credentials, tokens, issuers, certificates, quotas."""
