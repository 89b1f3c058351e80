"""The paper's theory, measured on finite processes."""
