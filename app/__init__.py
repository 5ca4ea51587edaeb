"""How people see it: command line, figures, report, pages."""
