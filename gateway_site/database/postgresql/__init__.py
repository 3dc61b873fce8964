"""
Django's PostgreSQL backend with a clock of the client on every wait.

A server that is frozen, or whose packets are dropped, keeps none of its own timeouts. So:

* `connection` checks its deadlines ten times a second for as long as a statement has no answer;
* `circuit_breaker` decides whether the server is silent or only slow: after half of
  GATEWAY_DATABASE_WAIT_SECONDS without an answer to anyone in this process it is asked `SELECT 1` over a new
  connection. If it answers, long statements go on; if it does not within the other half, every wait ends with
  an OperationalError, which clients see as 503;
* from then on the circuit is open: statements and connects fail at once, and one thread goes on asking. When
  the server answers again the circuit closes, and connections from before the outage are not used any more;
* `deadlines.deadline` bounds everything that a thread does with the database, whatever the server says: for
  the reads that every inference request waits for.
"""
