"""The explorer's frame: what every page shares. A page itself is a short file in `app/explorer/pages/`."""
