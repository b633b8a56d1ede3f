"""Messages of the contract to the words of the domain and back, and the checks of requests.

It must not wait, and knows neither gRPC nor the service of a message.
"""
