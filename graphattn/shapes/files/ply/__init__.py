"""PLY files: header, and bodies of ascii and binary ones."""
