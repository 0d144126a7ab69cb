"""The page of a report in a browser: drawn pages."""
