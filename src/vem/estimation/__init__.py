"""What a policy is worth, from recordings alone: fitted Q evaluation, importance sampling, and choosing by them."""
