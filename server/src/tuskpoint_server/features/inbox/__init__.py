"""Offers of hand-offs: what agents find in their inboxes, adopt and withdraw.

It must not close an offer twice, or outside the transaction of what closes the offer.
"""
