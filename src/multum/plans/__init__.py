"""Which ensemble fits what a user can pay: `multum.plan`."""
