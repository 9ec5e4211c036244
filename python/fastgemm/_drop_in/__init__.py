"""fastgemm computes torch's own products: ``patch``, ``enable``, and the counts of routed calls."""
