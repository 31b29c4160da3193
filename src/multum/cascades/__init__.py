"""Members one after another, and only as many as an example needs: `multum.Cascade`."""
