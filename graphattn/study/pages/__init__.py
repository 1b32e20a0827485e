"""Reports of studies: numbers, sections, figures, files."""
