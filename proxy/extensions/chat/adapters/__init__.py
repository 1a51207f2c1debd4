"""How clients of a model server read failures of ours."""
