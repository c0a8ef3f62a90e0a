"""What the seeds give word for word: the two YAML blocks, and the request for clarification."""

CLARIFIER_BLOCK = """\
functions:
  clarifier_agent:
    _type: clarifier_agent
    llm: nemotron_llm
    planner_llm: nemotron_llm
    tools:
      - web_search_tool
    max_turns: 3
    enable_plan_approval: true
    max_plan_iterations: 10
    verbose: true
"""

CLASSIFIER_BLOCK = """\
functions:
  intent_classifier:
    _type: intent_classifier
    llm: nemotron_llm
    tools:
      - web_search_tool
    verbose: true
    llm_timeout: 90
"""

BLOCKS = CLARIFIER_BLOCK + CLASSIFIER_BLOCK.removeprefix("functions:\n")

AMBIGUITY = """
{
  "needs_clarification": true,
  "ambiguity_details": [
    {
      "aspect": "search_scope",
      "description": "The search scope is unclear",
      "clarification_question": "Would you like to search in all documents or only recent ones?",
      "possible_options": ["all_documents", "recent_documents"]
    },
    {
      "aspect": "output_format",
      "description": "Output format preference not specified",
      "clarification_question": "How would you like the results formatted?",
      "possible_options": ["summary", "detailed_report", "bullet_points"]
    }
  ]
}
"""
"""The example clarification request of seed S3, word for word."""
