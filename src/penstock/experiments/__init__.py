"""The papers' trials, and what came of them: each paper's figures beside ours."""
