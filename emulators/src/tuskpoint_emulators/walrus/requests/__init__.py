"""Checks before a handler runs: route, query, form, token and admission.

It must not change the ledger.
"""
