"""Files: whole or not there, mapped, hashed, locked, known by what is in them."""
