"""Who answers a question before the human is asked, and who may."""
