"""The asyncio half: carries out the session core's effects. The only room that knows the ports."""
