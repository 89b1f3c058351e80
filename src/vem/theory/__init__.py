"""The theory of the paper's section 4 as code: operators, random processes, studies (NumPy, float64)."""
