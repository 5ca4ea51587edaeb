"""The explorer's pages, one a file. `app/explorer/registry.py` lists them."""
