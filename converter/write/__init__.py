"""Timeline to packets: lanes, columnar protobuf encoding, the file."""
