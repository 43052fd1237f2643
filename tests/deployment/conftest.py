"""Shows the figures that the deployment tests measured."""


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
