"""Pictures: pure functions from results to plotly figures, shared by reports and pages."""
