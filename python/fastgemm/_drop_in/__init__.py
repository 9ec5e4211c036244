"""fastgemm in the place of torch's own products: ``patch``, ``enable`` and what they routed."""
