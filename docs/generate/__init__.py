"""What the pages of the site take from the code and from committed results, instead of saying it twice."""
