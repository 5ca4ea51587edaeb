"""Reports: every probe on some counters, as JSON, tidy tables and one page that opens offline."""
